"""A program that runs an exported file as KernelBench does."""

from __future__ import annotations

#: What KernelBench does: reference and candidate are executed in one context without `__file__`, made with one seed,
#: never put into evaluation mode, compared without gradients and timed with them.
AS_KERNELBENCH_DOES = """
import sys, torch
reference, candidate = (open(path).read() for path in sys.argv[1:3])
context = {}
exec(reference, context)
Model, get_inputs, get_init_inputs = (context[name] for name in ("Model", "get_inputs", "get_init_inputs"))
exec(candidate, context)
pair = []
for made in (Model, context["ModelNew"]):
    torch.manual_seed(42)
    with torch.no_grad():
        pair.append(made(*get_init_inputs()).to(dtype=torch.float32))
model, new = pair
assert list(model.state_dict()) == list(new.state_dict())
assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), new.state_dict().values()))
torch.manual_seed(7)
for _ in range(3):
    inputs = get_inputs()
    with torch.no_grad():
        torch.testing.assert_close(new(*inputs), model(*inputs), atol=1e-4, rtol=1e-4)
assert not new(*inputs).requires_grad
torch.testing.assert_close(new(*inputs), model(*inputs).detach(), atol=1e-4, rtol=1e-4)
print("as", next((type(one).__name__ for one in (context.get("_kernels"),) if one), "package"))
"""
