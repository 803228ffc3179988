"""The sync process: a child of the server that copies models from the registry to disk until its parent ends.

The copying is done in `modelserve.loading.sync`. Started by `modelserve.server.supervisor` as
`python -m modelserve.server.mirroring`.
"""

from modelserve.server.log_lines import write_log_lines
from modelserve.server.supervisor_pipe import SupervisorPipe
from modelserve.settings import ServeSettings

END_WITHIN_S = 5.0


def main() -> None:
    """Mirror the registry until the parent process ends."""
    SupervisorPipe.hold(end_within_s=END_WITHIN_S)
    write_log_lines(ServeSettings().log_format)
    from modelserve.loading.sync import main as mirror_forever

    mirror_forever()


if __name__ == "__main__":
    main()
