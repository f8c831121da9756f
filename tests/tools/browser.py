"""A headless Chromium, controlled through a pipe: pages, their errors and requests, the pointer, pictures. No package
beside Python's own."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")


def find():
    """The path of a browser, None without one."""
    named = os.environ.get("FLEXLAB_BROWSER")
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page. `errors` collects the messages of the console and the network, `requests` every requested address."""

    def __init__(self, program):
        self.errors, self.requests, self._replies, self._buffer, self._next = [], [], {}, b"", 0
        self._profile = tempfile.mkdtemp(prefix="flexlab-browser-")
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()

        def prepare():  # the browser reads descriptor 3 and writes descriptor 4
            spare = [os.dup(to_browser), os.dup(from_browser)]
            high = [os.dup2(fd, 60 + i) for i, fd in enumerate(spare)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
        self._process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
             "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={self._profile}", "about:blank"],
            preexec_fn=prepare, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._session = None
        page = next(t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(domain + ".enable")

    def close(self):
        try:
            self._session = None
            self._call("Browser.close")
            self._process.wait(timeout=10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    # --- the pipe ---

    def _read(self, until, seconds=30):
        """Reads messages until `until` is true."""
        end = time.monotonic() + seconds
        while not until():
            ready, _, _ = select.select([self._from], [], [], max(0, end - time.monotonic()))
            block = os.read(self._from, 1 << 20) if ready else b""
            if not block:
                raise RuntimeError("the browser is silent" if not ready else "the browser has ended")
            *whole, self._buffer = (self._buffer + block).split(b"\0")
            for text in whole:
                self._take(json.loads(text))

    def _take(self, message):
        what, about = message.get("method"), message.get("params", {})
        if "id" in message:
            self._replies[message["id"]] = message
        elif what == "Runtime.exceptionThrown":
            self.errors.append(about["exceptionDetails"].get("exception", {}).get("description") or about["exceptionDetails"]["text"])
        elif what == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert") and "getImageData" not in str(about["args"]):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in about["args"]))
        elif what == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning") and "getImageData" not in about["entry"]["text"]:  # tests read canvases
            self.errors.append(about["entry"]["text"])
        elif what == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif what == "Page.loadEventFired":
            self._loaded = True

    def _call(self, method, **parameters):
        self._next += 1
        number = self._next
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        self._read(lambda: number in self._replies)
        reply = self._replies.pop(number)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        return reply.get("result", {})

    # --- the page ---

    def downloads(self, folder):
        """Stores the files that pages save in that folder."""
        self._call("Browser.setDownloadBehavior", behavior="allow", downloadPath=os.path.abspath(folder))

    def window(self, width, height, dark=False, phone=False, settle=True):
        """A window of this size and kind, in which the page is redrawn."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self._call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        if settle:
            self.settle()

    def scripts(self, allowed):
        self._call("Emulation.setScriptExecutionDisabled", value=not allowed)

    def open(self, path):
        """Opens the page of a file. The requests of an earlier one are forgotten, but not its errors."""
        self._loaded = False
        self.requests.clear()
        self._call("Page.navigate", url="file://" + os.path.abspath(path))
        self._read(lambda: self._loaded)
        self.settle()

    def settle(self):
        """Waits two frames, after which everything that waits for one is drawn."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))")

    def value(self, expression):
        """The value of a JavaScript expression, or of the promise that it returns."""
        reply = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(reply["exceptionDetails"].get("exception", {}).get("description", "failed") + " in " + expression)
        return reply["result"].get("value")

    def mouse(self, kind, x, y, **more):
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, x, y, x2, y2):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        for part in (0.3, 0.6, 1):
            self.mouse("mouseMoved", x + part * (x2 - x), y + part * (y2 - y), button="left", buttons=1)
        self.mouse("mouseReleased", x2, y2, button="left", clickCount=1)
        self.settle()

    def touch(self, *positions):
        """Fingers put down at the first list of (x, y), moved to the others, lifted."""
        for kind, points in zip(["touchStart"] + ["touchMove"] * (len(positions) - 1), positions):
            self._call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)])
            self.settle()
        self._call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key)

    def picture(self, path, clip=None):
        """The whole page as PNG, or (x, y, width, height) of it."""
        if not clip:
            size = self._call("Page.getLayoutMetrics")["cssContentSize"]
            clip = (0, 0, size["width"], size["height"])
        x, y, width, height = clip
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                          clip={"x": x, "y": y, "width": width, "height": height, "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
