"""A process that writes to a store: feedback of its own and of everyone, each acknowledged on stdout once it is stored.

Run by the tests of the store: `python store_writer.py URL NAME CALLS`.
"""

import sys

from tests.modelserve.feedback_cases import ACCOUNTING, body, row, service_of


def main(url: str, name: str, calls: int) -> None:
    service = service_of(url)
    for call in range(calls):
        rows = [row(f"{name}-{call}-{i}") for i in range(3)] + [row(f"shared-{call}")]
        results = service.take_feedback(body(rows), ACCOUNTING).results
        for result in results:
            sys.stdout.write(f"{result.job_id} {result.status}\n")
        sys.stdout.flush()
    service.store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
