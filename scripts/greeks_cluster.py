r"""Greeks of a call under Heston on a Dask cluster, kept on disk as they come.

On one machine, in three terminals:

    dask scheduler --host 127.0.0.1 --port 8786 --dashboard-address 127.0.0.1:0
    dask worker tcp://127.0.0.1:8786 --nworkers 2 --nthreads 1 --host 127.0.0.1 \
        --dashboard-address 127.0.0.1:0
    python scripts/greeks_cluster.py tcp://127.0.0.1:8786 --checkpoint out/cluster

Left to themselves, Dask's two commands listen on all addresses: --host and --dashboard-address keep
them on this machine. Stop it at any time: the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import sys

import sdesens
from sdesens.models import Heston
from sdesens.pricing import Call


def main(argv: list[str] | None = None) -> int:
    """Run the job; 130 if it was interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scheduler", help="address of the scheduler, tcp://host:port")
    parser.add_argument("--paths", type=int, default=4_000_000, help="the most paths (4,000,000)")
    parser.add_argument("--steps", type=int, default=50, help="steps (50)")
    parser.add_argument("--target", type=float, help="stop at this standard error of the price")
    parser.add_argument("--checkpoint", help="folder of finished shards")
    arguments = parser.parse_args(argv)
    try:
        report = sdesens.greeks(
            Heston(0.03, kappa=1.5, theta=0.04, xi=0.3, rho=-0.7),
            Call(strike=100.0, maturity=1.0),
            [100.0, 0.04],
            paths=arguments.paths,
            steps=arguments.steps,
            executor=arguments.scheduler,
            checkpoint=arguments.checkpoint,
            target_stderr=arguments.target,
            progress=True,
        )
    except KeyboardInterrupt:
        again = "the same command goes on" if arguments.checkpoint else "nothing was kept"
        print(f"\ninterrupted: {again}", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"greeks_cluster.py: {error}", file=sys.stderr)
        return 2
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
