// For NVRTC, which has memcpy and memset built in.
#pragma once
