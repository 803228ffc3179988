"""The sync process: a child of the server that copies models from the registry to disk until its parent ends."""

from modelserve.server.environment import follow_supervisor
from modelserve.server.log_lines import write_log_lines
from modelserve.settings import ServeSettings


def main() -> None:
    """Mirror the registry until the parent process ends."""
    follow_supervisor(end_within_s=5.0)
    write_log_lines(ServeSettings().log_format)
    from modelserve.loading.sync import main as mirror_forever

    mirror_forever()


if __name__ == "__main__":
    main()
