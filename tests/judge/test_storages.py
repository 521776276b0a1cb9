"""Parameters that lie in one storage lie so in the judge's memory, and in the tensors that PyTorch gets of it."""

from __future__ import annotations

from contextlib import closing

import torch

from kernel_assistant.worker.runner.pytorch.residual import tensors_at
from kernel_assistant.worker.running.storages import copies, in_one_storage, offsets
from tests.judge.test_arena import sets_of

FLOATS = {"dtype": "f32"}


def _weights(*widths: int) -> list[torch.Tensor]:
    """Weights of these numbers of values, one behind the other in one storage."""
    whole = torch.arange(float(sum(widths)))
    return list(whole.split(widths))


def test_weights_of_one_storage_keep_their_distances():
    other, (first, second, third) = torch.ones(5), _weights(64, 32, 7)
    found, size = offsets([third, other, first, second])
    assert [found[0] - found[2], found[3] - found[2]] == [4 * 96, 4 * 64]
    assert found[1] % 256 == 0 and found[2] % 256 == 0
    assert size >= 4 * (64 + 32 + 7 + 5) + 2 * 256


def test_a_copy_has_them_in_one_storage_as_well():
    weights = dict(zip("bca", _weights(64, 32, 7), strict=True))
    weights["turned"] = torch.arange(6.0).reshape(2, 3).t()
    made = copies(weights)
    assert list(made) == list(weights)
    assert len(in_one_storage(list(made.values()))) == 2
    for name, value in weights.items():
        assert torch.equal(made[name], value) and made[name].stride() == value.stride()
        assert made[name].data_ptr() != value.data_ptr()


def test_alone_are_those_that_overlap_have_other_dtypes_or_addresses_that_kernels_do_not_expect():
    whole = torch.arange(64.0)
    assert in_one_storage([whole, whole[16:]]) == [[0], [1]]
    assert in_one_storage([whole[:16], whole[16:].view(torch.int32)]) == [[0], [1]]
    assert in_one_storage(_weights(17, 5)) == [[0], [1]]
    assert in_one_storage([torch.empty(0), torch.empty(0)]) == [[0], [1]]
    assert in_one_storage(_weights(16, 5)) == [[0, 1]]


def test_pytorch_gets_one_piece_of_memory():
    first, second = _weights(64, 32)
    with closing(sets_of([torch.zeros(8)], [torch.zeros(8)], {"p0": second, "p1": first})) as sets:
        held = [(view.data_ptr(), FLOATS, (view.shape, view.stride(), 4 * view.numel())) for view in sets._constants]
        held.append((sets.inputs[0][0].data_ptr(), FLOATS, ((8,), (1,), 32)))
        later, whole, given = tensors_at(held, "cpu")
        assert torch.equal(whole, first) and torch.equal(later, second)
        assert whole.untyped_storage().nbytes() == 4 * 96
        assert later.untyped_storage().nbytes() == 4 * 32 and given.untyped_storage().nbytes() == 32
        assert torch.equal(whole.as_strided((96,), (1,)), torch.arange(96.0))
        del later, whole, given
