"""A small WebDriver client for headless Chromium: Python's standard library only."""

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request


class BrowserError(Exception):
    """The browser could not be started or refused a command."""


def find(names, variable):
    """Path of the first program found; the environment variable goes first."""
    given = os.environ.get(variable)
    if given:
        return given
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise BrowserError(
        f"none of {', '.join(names)} found; install Debian's chromium and chromium-driver, or set {variable}"
    )


class Browser:
    """One headless Chromium without a network. Use as a context manager."""

    def __init__(self):
        self.chromium = find(["chromium", "chromium-browser", "google-chrome"], "CHROMIUM")
        self.driver = find(["chromedriver"], "CHROMEDRIVER")
        self.process = None
        self.session = None
        self.profile = None

    def __enter__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.profile = tempfile.mkdtemp(prefix="skewbench-browser-")
        self.base = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [self.driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._wait_until_ready()
            self._start_session()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        if self.session:
            try:
                self._call("DELETE", f"/session/{self.session}")
            except BrowserError:
                pass
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.profile:
            shutil.rmtree(self.profile, ignore_errors=True)

    def _wait_until_ready(self):
        for _ in range(150):
            if self.process.poll() is not None:
                raise BrowserError(f"{self.driver} ended with {self.process.returncode}")
            try:
                if self._call("GET", "/status").get("ready"):
                    return
            except BrowserError:
                pass
            time.sleep(0.1)
        raise BrowserError(f"{self.driver} did not answer within 15 s")

    def _start_session(self):
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-default-apps",
            "--disable-extensions",
            "--disable-sync",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={self.profile}",
        ]
        # A proxy would resolve names itself, past the rule above.
        arguments.append("--no-proxy-server")
        options = {"binary": self.chromium, "args": arguments, "perfLoggingPrefs": {"enableNetwork": True}}
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        value = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = value["sessionId"]

    def _call(self, method, path, body=None):
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(
            self.base + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            try:
                message = json.load(error)["value"]["message"]
            except (ValueError, KeyError, TypeError):
                message = str(error)
            raise BrowserError(message.split("\n")[0]) from None
        except OSError as error:
            raise BrowserError(f"no answer from the driver: {error}") from None

    def command(self, path, body=None):
        """A WebDriver command of this session, again where a busy machine kept the renderer from answering in the driver's ten seconds."""
        for last in (False, False, True):
            try:
                return self._call("POST", f"/session/{self.session}/{path}", body)
            except BrowserError as error:
                if last or "receiving message from renderer" not in str(error):
                    raise

    def devtools(self, name, **parameters):
        """A command of the DevTools protocol."""
        return self.command("goog/cdp/execute", {"cmd": name, "params": parameters})

    def open(self, url):
        """Loads a page and waits for it."""
        self.command("url", {"url": url})

    def run(self, script, *arguments):
        """Value of a JavaScript function body."""
        return self.command("execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script, *arguments):
        """What a JavaScript function body gives to its last argument, a callback."""
        return self.command("execute/async", {"script": script, "args": list(arguments)})

    def log(self, kind):
        """Entries of a log since the last call: browser or performance."""
        return self.command("se/log", {"type": kind})

    def emulate(self, width, height=900, dark=False, phone=False, media=""):
        """Size of the window, colour scheme and medium."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def screenshot(self, path):
        """The whole page as a PNG."""
        size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def pdf(self):
        """The page as printed on A4."""
        shot = self.command("print", {"page": {"width": 21.0, "height": 29.7}, "background": True})
        return base64.b64decode(shot)
