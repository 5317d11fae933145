# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Runs a PyTorch script on Tidemark's memory.

    python -m tidemark.torch [--policy P] [--set KEY=VALUE ...] [--no-host] [--stats] script.py [ARGUMENT ...]
    python -m tidemark.torch [...] -m module [ARGUMENT ...]
    python -m tidemark.torch --doctor
"""
from __future__ import annotations

import argparse
import os
import runpy
import sys
from typing import Optional, Sequence


def parse(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parses the command line; arguments after the script belong to the script."""
    parser = argparse.ArgumentParser(prog="python -m tidemark.torch",
                                     description="runs a PyTorch script on Tidemark's memory")
    parser.add_argument("--doctor", action="store_true", help="print what is in use here and why; status 0 if all works")
    parser.add_argument("--policy", help='"tide" (default) or "torch"')
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="set an option of the allocator")
    parser.add_argument("--no-host", action="store_true", help="leave pinned memory to PyTorch")
    parser.add_argument("--stats", action="store_true", help="print the peak memory at the end")
    parser.add_argument("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="run a module")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")
    parsed = parser.parse_args(arguments)
    parsed.target = parsed.module or parsed.script
    if not parsed.target and not parsed.doctor:
        parser.error("a script is missing")
    for option in parsed.set:
        if "=" not in option:
            parser.error(f"--set takes KEY=VALUE, not {option!r}")
    return parsed


def print_stats() -> None:
    """Prints one line to standard error."""
    import tidemark.torch
    flat = tidemark.torch.stats()
    device = flat["device"]
    if device:
        print(f"tidemark: peak {device['allocated_bytes.all.peak'] / 2**20:.0f} MiB allocated, "
              f"{device['reserved_bytes.all.peak'] / 2**20:.0f} MiB reserved ({flat['utilisation']:.3f})",
              file=sys.stderr)


def main() -> None:
    """The command."""
    parsed = parse()
    import tidemark.torch
    options = dict(option.split("=", 1) for option in parsed.set)
    if parsed.doctor:
        from . import doctor
        sys.exit(doctor.main(parsed.policy, options))
    installed = tidemark.torch.install(parsed.policy, host=False if parsed.no_host else None, **options)
    if installed.way == "off":
        print("tidemark: TIDEMARK_TORCH is off: running on PyTorch's own allocator", file=sys.stderr)
    sys.argv = parsed.target
    try:
        if parsed.module:
            sys.path[0] = os.getcwd()
            runpy.run_module(parsed.target[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(parsed.target[0]))
            runpy.run_path(parsed.target[0], run_name="__main__")
    finally:
        if parsed.stats and installed.way != "pluggable" and "torch" in sys.modules:
            print_stats()


if __name__ == "__main__":
    main()
