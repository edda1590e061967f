"""Fetches what the tests of a lake on S3 need into a directory: a server that speaks S3, and Hadoop's connector.

Both come from the Python package index. The server is moto; sagemaker-pyspark contains hadoop-aws with its SDK. The
connector is older than Spark's own Hadoop; users add the one of the same version. `make test-s3` runs this.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SERVER = "moto[server,s3]>=5"
CARRIER = "sagemaker-pyspark==1.4.5"
JARS = ("hadoop-aws-", "aws-java-sdk-bundle-")


def main() -> None:
    kit = Path(sys.argv[1])
    if not (kit / "site").is_dir():
        _pip("install", "--quiet", "--target", str(kit / "site"), SERVER)
    if (kit / "jars").is_dir():
        return
    with tempfile.TemporaryDirectory() as scratch:
        _pip("download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", scratch, CARRIER)
        with tarfile.open(next(Path(scratch).glob("*.tar.gz"))) as archive:
            (kit / "jars").mkdir(parents=True)
            for member in archive.getmembers():
                name = Path(member.name).name
                content = archive.extractfile(member) if name.startswith(JARS) and name.endswith(".jar") else None
                if content is not None:
                    (kit / "jars" / name).write_bytes(content.read())


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)


if __name__ == "__main__":
    main()
