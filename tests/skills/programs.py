"""One small kernel for each function of a CUDA header. Tests run them at odd sizes, the benchmark at large sizes."""

from __future__ import annotations

from tests.skills import row_programs as rows
from tests.skills import tile_programs as tiles
from tests.skills.program import CTYPE, Program


def programs() -> dict[str, Program]:
    """Every program by name."""
    layouts = ("rows_of_k", "columns_of_k")
    found = [
        *(make(dtype) for dtype in CTYPE for make in (rows.gate, rows.layer_norm, rows.warp_softmax, tiles.running)),
        *(tiles.turned(dtype) for dtype in CTYPE),
        *(rows.long_softmax("f32"), rows.long_softmax("bf16"), rows.long_softmax("f16", log=True)),
        *(rows.channels(), rows.spread(), rows.reduced(), rows.column_sums(), tiles.products_before(), tiles.chunked()),
        *(tiles.pool_1d(), tiles.pool_2d(), tiles.pool_3d(), tiles.pool_beside()),
        *(tiles.running_back(), tiles.down(), tiles.tall(), tiles.turned_onto()),
        *(make(dtype) for dtype in CTYPE for make in (tiles.below, tiles.placed)),
        *(
            tiles.product("f32", precision, a, b)
            for precision in ("fast", "accurate")
            for a in layouts
            for b in layouts
        ),
        *(tiles.product("bf16", "fast", a, b) for a in layouts for b in layouts),
        tiles.product("f16", "fast", *layouts),
    ]
    return {one.name: one for one in found}
