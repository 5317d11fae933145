# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The build backend: setuptools, which also asks for CMake where the system has none that is new enough."""
import re
import shutil
import subprocess

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F401,F403 - all the other hooks

CMAKE = (3, 25)


def cmake_version() -> tuple:
    """The version of the system's CMake; empty if there is none that runs."""
    try:
        said = subprocess.run(["cmake", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    found = re.search(r"(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


def extra_requirements() -> list:
    """Packages that stand in for missing programs."""
    wanted = [] if cmake_version() >= CMAKE else [f"cmake>={CMAKE[0]}.{CMAKE[1]}"]
    return wanted + ([] if wanted == [] or shutil.which("ninja") or shutil.which("make") else ["ninja"])


def get_requires_for_build_wheel(config_settings=None):
    """Called by pip before an isolated build."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *extra_requirements()]
