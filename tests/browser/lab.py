"""A real JupyterLab over a folder, and a driver that uses it the way a reader does: by keyboard.

`serve(folder)` starts a server with its own configuration, settings and workspaces, so that neither what is
installed for the user nor an earlier session changes what a test sees. `LabNotebook` is one open notebook.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Every cell is in the page, not only those in view: the driver counts them.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}


def find_chromium() -> str | None:
    """The Chromium to drive: $CHROMIUM, or the first one on the path."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    found = map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])
    return next(filter(None, found), None)


@dataclass(frozen=True)
class Server:
    """A running JupyterLab: its address, token, root folder and log."""

    url: str
    token: str
    folder: Path
    log: Path


@contextlib.contextmanager
def serve(folder: Path, private: Path, start_limit_s: float = 120) -> Iterator[Server]:
    """Serve a folder with JupyterLab until the block ends.

    Args:
        folder: what the server shows.
        private: an empty folder for configuration, settings, workspaces, progress and the log.
    """
    for name, value in SETTINGS.items():
        path = private / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")
    token, port, log = secrets.token_hex(16), _free_port(), private / "server.log"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.extension_manager=readonly"]  # the default one asks a package index
    with log.open("w") as output:
        server = subprocess.Popen(command, env=_private_environment(private), stdout=output, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_up(server, f"{url}/api?token={token}", log, start_limit_s)
        yield Server(url, token, folder, log)
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _private_environment(private: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "JUPYTER_CONFIG_DIR": str(private / "config"),
        "JUPYTER_DATA_DIR": str(private / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(private / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(private / "workspaces"),
        "IPYTHONDIR": str(private / "ipython"),
        "PITFALLS_HOME": str(private / "pitfalls"),
    }


def _wait_until_up(server: subprocess.Popen, address: str, log: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError, urllib.error.URLError):
            urllib.request.urlopen(address, timeout=2).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


_KERNEL_IDLE = "document.querySelector('#jp-bottom-panel')?.innerText.includes('| Idle')"
_ALL_CELLS_SHOWN = """() => {
    const bar = document.querySelector('#jp-bottom-panel').innerText.match(/Cell \\d+\\/(\\d+)/);
    return bar && document.querySelectorAll('.jp-Notebook .jp-Cell').length === Number(bar[1]);
}"""
# A cell is done when its number is a new one and the kernel is idle again: the star comes late.
_DONE_OR_ASKING = """([index, before]) => {
    const cell = document.querySelectorAll('.jp-Notebook .jp-Cell')[index];
    if (cell.querySelector('.jp-Stdin-input')) return 'asking';
    const prompt = cell.querySelector('.jp-InputPrompt').textContent;
    const indicator = document.querySelector('.jp-Notebook-ExecutionIndicator');
    const idle = indicator.dataset.status === 'idle';
    return idle && /\\d/.test(prompt) && prompt !== before ? 'done' : false;
}"""


@dataclass
class LabNotebook:
    """An open notebook in JupyterLab, with its kernel running.

    Attributes:
        page: playwright's page.
        limit_ms: how long one cell may run.
        outside: addresses that the page asked for and that are not this machine.
    """

    page: object
    limit_ms: int = 120_000
    outside: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, browser: object, server: Server, path: str) -> LabNotebook:
        """Open a notebook, by its path under the server's folder, and wait for its kernel."""
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        notebook = cls(page)
        page.on("request", lambda request: notebook._note(request.url))
        page.goto(f"{server.url}/lab/tree/{path}?token={server.token}&reset")
        page.locator(".jp-NotebookPanel:visible").wait_for(timeout=60_000)
        # The execution indicator says idle before there is a kernel; the status bar does not.
        page.wait_for_function(_KERNEL_IDLE, timeout=60_000)
        page.wait_for_function(_ALL_CELLS_SHOWN, timeout=60_000)
        return notebook

    def _note(self, url: str) -> None:
        if url.startswith("http") and not url.startswith("http://127.0.0.1"):
            self.outside.append(url)

    def cells(self):
        """All cells, in order (a playwright locator)."""
        return self.page.locator(".jp-Notebook .jp-Cell")

    def cell(self, index: int):
        """One cell (a playwright locator)."""
        return self.cells().nth(index)

    def find(self, text: str) -> int:
        """The index of the first code cell whose source has this text."""
        for index in range(self.cells().count()):
            if self._is_code(index) and text in self.source(index):
                return index
        raise AssertionError(f"no code cell has {text!r}")

    def source(self, index: int) -> str:
        """A code cell's source, as the editor shows it."""
        lines = self.cell(index).locator(".cm-line").all_text_contents()
        return "\n".join(lines)

    def type_source(self, index: int, text: str) -> None:
        """Replace a cell's source: click into it, select all, type."""
        self.cell(index).locator(".cm-content").click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(text)
        assert self.source(index) == text, f"the editor shows {self.source(index)!r}"

    def run(self, index: int, answer: Callable[[str], str] | None = None) -> None:
        """Select a cell and run it with Control+Enter; answer what it asks."""
        self.cell(index).locator(".jp-InputPrompt").first.click()
        self._press_and_wait("Control+Enter", index, answer)

    def run_all(self, answer: Callable[[str], str] | None = None) -> None:
        """Run every cell from the first, with Shift+Enter, waiting for each.

        Args:
            answer: gives what to type for a prompt's text; by default nothing, which is Enter alone.
        """
        last = self.cells().count() - 1
        self._to_command_mode()
        self.page.keyboard.press("Control+Home")
        for index in range(last + 1):
            if not self._is_active(index):  # answering a prompt selects the cell that asked
                self.page.keyboard.press("ArrowDown")
            assert self._is_active(index), f"cell {index} is not selected"
            # After the last cell Shift+Enter would add one.
            self._press_and_wait("Shift+Enter" if index < last else "Control+Enter", index, answer)

    def _is_active(self, index: int) -> bool:
        return "jp-mod-active" in self.cell(index).get_attribute("class").split()

    def _is_code(self, index: int) -> bool:
        return "jp-CodeCell" in self.cell(index).get_attribute("class").split()

    def _to_command_mode(self) -> None:
        self.page.locator(".jp-Notebook").first.focus()
        self.page.keyboard.press("Escape")

    def _press_and_wait(self, key: str, index: int, answer: Callable[[str], str] | None = None) -> None:
        """Press a key that runs the selected cell; return when it has run."""
        if not self._is_code(index) or not self.source(index).strip():
            self.page.keyboard.press(key)
            return
        before = self.cell(index).locator(".jp-InputPrompt").text_content()
        self.page.keyboard.press(key)
        while True:
            state = self.page.wait_for_function(_DONE_OR_ASKING, arg=[index, before], timeout=self.limit_ms)
            if state.json_value() == "done":
                return
            box = self.cell(index).locator(".jp-Stdin-input")
            prompt = self.cell(index).locator(".jp-Stdin-prompt").inner_text()
            box.fill(answer(prompt) if answer else "")
            box.press("Enter")
            box.wait_for(state="detached")
            self._to_command_mode()

    def output(self, index: int):
        """A cell's output area (a playwright locator)."""
        return self.cell(index).locator(".jp-Cell-outputWrapper")

    def errors(self) -> list[str]:
        """The text of every traceback in the notebook (JupyterLab shows one as stderr)."""
        shown = self.page.locator(".jp-Notebook .jp-OutputArea-output").all_inner_texts()
        return [text for text in shown if "Traceback (most recent call last)" in text]

    def screenshot(self, path: Path, index: int | None = None) -> None:
        """Save a picture of the window, scrolled to a cell's output if one is named."""
        if index is not None:
            self.output(index).scroll_into_view_if_needed()
        self.page.screenshot(path=path)
