"""Start the real supervisor with stand-in workers, in a process of its own, as `taut serve` would.

Started by the fixture `server` as `python launch.py`; what the server says goes to stdout, line by line.
"""

import sys
from pathlib import Path

from modelserve.server import serve
from modelserve.settings import ServeSettings

if __name__ == "__main__":
    command = (sys.executable, str(Path(__file__).with_name("standin.py")))
    serve(ServeSettings(), say=lambda text: print(text, flush=True), worker=command)
