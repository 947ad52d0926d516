"""Java 17 or newer, which Spark and Apache Kafka run on: `python -m deploy.tools.java` finds it or installs it.

As root on a machine with apt-get a missing Java is installed; elsewhere one line names the command to run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from deploy.tools.errors import ToolsError

JAVA_VERSION_MIN = 17
VERSION_TIMEOUT_SECONDS = 30
INSTALL_COMMAND = ("apt-get", "install", "-y", "-q", "openjdk-17-jre-headless")


def parse_major_version(banner: str) -> int | None:
    """The major version in what `java -version` prints (`openjdk version "17.0.15"`); None when there is none."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', banner)
    if match is None:
        return None
    major = int(match.group(1))
    # Java 8 and before call themselves 1.8.
    return int(match.group(2) or 0) if major == 1 else major


def java_executable() -> str | None:
    """The java that Spark would take: JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return os.path.join(home, "bin", "java")
    return shutil.which("java")


def java_major_version() -> int | None:
    """The major version of the java that would be used; None when there is none or it does not run."""
    java = java_executable()
    if java is None:
        return None
    answer = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=False
    )
    return parse_major_version(answer.stderr + answer.stdout)


def require_java() -> str:
    """Path of a java of version 17 or newer.

    Raises ToolsError naming the install command.
    """
    version = java_major_version()
    java = java_executable()
    if java is None or version is None or version < JAVA_VERSION_MIN:
        found = "there is none" if version is None else f"this machine has {version}"
        raise ToolsError(
            f"Java {JAVA_VERSION_MIN} or newer is needed for Spark and Kafka's own tools; {found}",
            hint=f"install it with: sudo {' '.join(INSTALL_COMMAND)}",
        )
    return java


def main() -> int:
    try:
        require_java()
    except ToolsError as missing:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            print(f"error: {missing}; {missing.hint}", file=sys.stderr)
            return 1
    else:
        return 0
    print(f"Java {JAVA_VERSION_MIN} is missing, installing it: {' '.join(INSTALL_COMMAND)}", file=sys.stderr)
    subprocess.run(["apt-get", "update", "-q"], check=False, stdout=subprocess.DEVNULL)
    subprocess.run(INSTALL_COMMAND, check=False, stdout=subprocess.DEVNULL)
    try:
        require_java()
    except ToolsError as missing:
        print(f"error: {missing}; {missing.hint}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
