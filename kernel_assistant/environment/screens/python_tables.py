"""Names that the Python code of a free-form candidate may use. Data for `screen_python.py`."""

from __future__ import annotations

#: Modules a candidate may import, by their full names.
MODULES = frozenset(
    """__future__ typing math dataclasses collections itertools torch torch.nn torch.nn.functional torch.nn.init
    torch.nn.parameter torch.utils torch.utils.cpp_extension torch.autograd triton triton.language cuda_extension os
    triton.language.extra triton.language.math triton.language.extra.libdevice""".split()
)

#: Modules that a reference in the same file may import in addition.
REFERENCE_MODULES = MODULES | frozenset("functools random numpy einops abc enum copy".split())

#: Names of torch that forward and its helpers may use: allocation, dtypes, devices, metadata.
TORCH = frozenset(
    """empty empty_like empty_strided zeros zeros_like ones ones_like full full_like Tensor Size device dtype layout
    float float32 float16 float64 half double bfloat16 int int8 int16 int32 int64 uint8 long short bool
    contiguous_format channels_last channels_last_3d preserve_format strided no_grad inference_mode is_tensor
    float8_e4m3fn float8_e5m2 finfo iinfo as_strided
    cuda.current_device cuda.current_stream cuda.get_device_properties cuda.get_device_capability cuda.is_available
    cuda.device nn.Module nn.Parameter nn.parameter.Parameter autograd.Function utils.cpp_extension.load_inline
    utils.cpp_extension.load""".split()
)

#: Names of torch that constructors and the top level of the file may use in addition, to make parameters.
TORCH_BUILDING = frozenset(
    """randn rand randint arange linspace tensor eye normal manual_seed cat stack tril triu logspace
    nn.ModuleList nn.ModuleDict nn.Sequential nn.ParameterList nn.ParameterDict nn.Identity version.cuda""".split()
)

#: Methods of tensors that do not compute.
METHODS = frozenset(
    """size stride dim numel element_size nelement data_ptr contiguous is_contiguous view view_as reshape flatten
    unflatten squeeze unsqueeze transpose permute t expand expand_as detach clone to type float half double bfloat16
    int long bool cuda cpu new_empty new_zeros new_empty_strided zero_ fill_ copy_ item storage_offset narrow select
    split chunk unbind movedim swapaxes swapdims untyped_storage get_device is_floating_point requires_grad_ tolist
    type_as ndimension as_strided resize_ stream_id cuda_stream""".split()
)
#: Methods of lists, dicts, strings and of objects of Triton and torch.autograd.
OTHER_METHODS = frozenset(
    """append extend insert keys values items get format join startswith endswith split strip replace lower upper count
    save_for_backward mark_non_differentiable warmup""".split()
)
#: Methods of the module itself that the constructor may call.
BUILDING_METHODS = frozenset(
    """register_buffer register_parameter parameters buffers modules children named_parameters named_buffers
    add_module reset_parameters""".split()
)

BUILTINS = frozenset(
    """int float bool str len range min max abs sum tuple list dict set isinstance enumerate zip reversed sorted round
    print repr slice divmod pow any all super ValueError RuntimeError TypeError AssertionError
    NotImplementedError""".split()
)

FORBIDDEN_BUILTINS = frozenset(
    """eval exec compile open input breakpoint getattr setattr delattr hasattr globals locals vars dir id type
    memoryview __import__ __builtins__ __loader__ __spec__ object callable classmethod property KeyboardInterrupt
    SystemExit BaseException GeneratorExit""".split()
)

#: Attributes of any object that give access to things outside the candidate.
FORBIDDEN_ATTRIBUTES = frozenset(
    """__class__ __bases__ __base__ __mro__ __subclasses__ __globals__ __code__ __dict__ __builtins__ __getattribute__
    __wrapped__ __self__ __func__ __closure__ __module__ __loader__ gi_frame f_back f_globals tb_frame
    load_library hub load_state_dict register_forward_hook register_forward_pre_hook register_backward_hook
    register_full_backward_hook register_module_forward_hook _C _ops ops _dynamo compile jit fx package overrides
    set_default_dtype set_default_device set_num_threads use_deterministic_algorithms backends classes _apply apply_
    map_ data""".split()
)

#: Attributes of torch that a reference, which runs in the trusted process, may not use.
REFERENCE_ATTRIBUTES = frozenset(
    """load save hub load_library cpp_extension package serialization _C _ops classes multiprocessing distributed
    _inductor _dynamo tofile fromfile memmap savez loadtxt savetxt genfromtxt ctypeslib from_file""".split()
)

#: Environment variables that builds read.
ENVIRONMENT = frozenset(("TORCH_CUDA_ARCH_LIST", "MAX_JOBS", "CUDA_LAUNCH_BLOCKING", "CUDA_HOME"))

#: Dunder methods a class may define.
DUNDERS = frozenset(("__init__", "__repr__", "__name__", "__main__", "__file__"))

DECORATORS = frozenset(
    """triton.jit triton.autotune triton.heuristics staticmethod torch.no_grad torch.inference_mode dataclass
    dataclasses.dataclass""".split()
)
