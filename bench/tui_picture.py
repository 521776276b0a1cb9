"""A picture of the terminal interface on jobs that were run: `python bench/tui_picture.py PROJECT OUT.png KEY …`.

KERNEL_ASSISTANT_HOME names the state folder that has the jobs. Keys are Textual's names, or seconds to wait (6.0).
Chromium (`apt install chromium`) draws the SVG that Textual exports; fewer pixels and colours are a third of its bytes.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tui")]

SIZE = (160, 46)
#: A font that exists on every machine that draws pages; Textual's font would come from the web.
FONT = "DejaVu Sans Mono"
WIDTH, COLOURS = 1576, 128


async def svg(project: Path, keys: list[str]) -> str:
    """The screen after `keys`, as SVG."""
    from kernel_assistant_tui.app import KernelAssistant

    app = KernelAssistant(project)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.pause(2.0)
        for key in keys:
            if key.replace(".", "").isdigit() and "." in key:
                await pilot.pause(float(key))
            else:
                await pilot.press(key)
                await pilot.pause(0.5)
        return app.export_screenshot()


def draw(text: str, out: Path) -> None:
    """Draws `text` as a PNG of its own size."""
    text = re.sub(r"@font-face \{.*?\}", "", text, flags=re.DOTALL).replace("Fira Code", FONT)
    match = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    if match is None:
        raise ValueError("the SVG has no viewBox")
    width, height = (round(float(one) + 0.5) for one in match.groups())
    with tempfile.TemporaryDirectory(prefix="ka-picture-") as folder:
        page = Path(folder, "page.html")
        page.write_text(f"<meta charset=utf-8><body style='margin:0'>{text}</body>", encoding="utf-8")
        command = [shutil.which("chromium") or "chromium-browser", "--headless", "--no-sandbox", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", f"--window-size={width},{height}"]
        command += ["--default-background-color=00000000", f"--screenshot={out}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def shrink(picture: Path) -> None:
    """Reduces pixels and colours, in place."""
    from PIL import Image

    with Image.open(picture) as file:
        size = (WIDTH, round(file.height * WIDTH / file.width))
        drawn = file.convert("RGBA").resize(size, Image.Resampling.LANCZOS)
    few = drawn.quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(picture, optimize=True)


if __name__ == "__main__":
    out = Path(sys.argv[2]).absolute()
    draw(asyncio.run(svg(Path(sys.argv[1]), sys.argv[3:])), out)
    shrink(out)
