"""A rank that never answers."""

import time

from experiments.core.fork_server import serve


def main(folder: str, rank: str) -> None:
    time.sleep(3600)


if __name__ == "__main__":
    serve(main)
