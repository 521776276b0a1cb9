"""Names that the server and its clients agree on."""

from __future__ import annotations

OPTIMIZE = "kernelAssistant.optimize"
CANCEL = "kernelAssistant.cancel"
APPLY = "kernelAssistant.apply"
UNDO = "kernelAssistant.undo"
DISCARD = "kernelAssistant.discard"
VERIFY = "kernelAssistant.verify"
PROFILE = "kernelAssistant.profile"
SHOW = "kernelAssistant.show"
SCAN = "kernelAssistant.scan"
IGNORE = "kernelAssistant.ignore"
INPUTS = "kernelAssistant.inputs"
JOBS = "kernelAssistant.jobs"
DIFF = "kernelAssistant.diff"
ASSEMBLY = "kernelAssistant.assembly"

JOB_NOTIFICATION = "kernelAssistant/job"
STATUS_NOTIFICATION = "kernelAssistant/status"
WATCH_STATUS = "kernelAssistant/watchStatus"
