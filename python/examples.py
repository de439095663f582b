"""Runs the examples of the README and of docs/python.md, and the docstrings', with the package that is installed.

Each block of Python in a document is run in a folder of its own; a block of text behind it is what it prints.
"""

import contextlib
import doctest
import io
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run(document: str) -> int:
    blocks = BLOCK.findall((ROOT / document).read_text())
    names: dict = {}
    ran = 0
    for at, (language, text) in enumerate(blocks):
        # What waits for others to write is not run.
        if language != "python" or "consume(" in text:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, f"{document}, block {at + 1}", "exec"), names)
        ran += 1
        if at + 1 < len(blocks) and blocks[at + 1][0] == "text":
            expected = blocks[at + 1][1]
            if printed.getvalue() != expected:
                sys.exit(f"{document}: expected\n{expected}\nprinted\n{printed.getvalue()}")
    return ran


def main() -> None:
    # The package that is installed, not the folder beside this file.
    sys.path.remove(str(ROOT / "python"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for document in ("README.md", "docs/python.md"):
            ran = run(document)
            if not ran:
                sys.exit(f"{document} has no example")
            print(f"{document}: {ran} examples ran")
    import esker

    failed, ran = doctest.testmod(esker)
    if failed or not ran:
        sys.exit("examples of docstrings failed")
    print(f"docstrings: {ran} lines ran")


if __name__ == "__main__":
    main()
