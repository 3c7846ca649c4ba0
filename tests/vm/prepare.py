#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Get the VM tier's kernel and busybox from Debian and build the guest's image.

usage: tests/vm/prepare.py           make what is missing
       tests/vm/prepare.py --find    fail if something is missing

Both print two lines, the paths of the kernel and of the initramfs. All lands in
$SNT_CACHE/vm (default: ~/.cache/sennit/vm; build-vm of the checkout if that is read-only):

    debian-1/         the packages and the kernel; only making this uses apt
    initramfs-HASH    HASH is over all that it is made from

What is there is complete: it was made in a folder beside and then renamed.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

HERE = Path(__file__).resolve().parent
FALLBACK = HERE.parent.parent / "build-vm"
DEBIAN = "debian-1"  # the number changes with what download() makes
INITRAMFS_KEPT = 8  # checkouts that differ may share the cache

# What the guest needs, in the order of need; what these depend on is added.
# virtio_console carries the output. rxe asks for the crc32 algorithm by name,
# so nothing but this list knows that it needs crc32_generic.
MODULES = """
    virtio_pci virtio_console 9pnet_virtio 9p overlay
    virtio_net veth dummy sch_netem
    crc32_generic rdma_rxe ib_uverbs rdma_cm rdma_ucm
""".split()
PARAMETERS = {"dummy": "numdummies=0"}  # else it makes an interface unasked


class Problem(Exception):
    """A sentence for the user."""


def cache_folders() -> List[Path]:
    """Where it may be, the best place first."""
    own = os.environ.get("SNT_CACHE")
    if own:
        return [Path(own).absolute() / "vm"]
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        first = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:  # a user without a name
        return [FALLBACK]
    return [first / "sennit" / "vm", FALLBACK]


def is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


class Image(NamedTuple):
    kernel: Path
    initramfs: Path

    def complete(self) -> bool:
        # Of a folder that may not even be looked into.
        return os.path.isfile(self.kernel) and os.path.isfile(self.initramfs)


def image_in(cache: Path) -> Image:
    digest = hashlib.sha256()
    for source in (Path(__file__), HERE / "init.sh"):
        digest.update(source.read_bytes() + b"\0")
    # A download is made once and whole, so the names say what is in it.
    for deb in sorted((cache / DEBIAN).glob("*.deb")):
        digest.update(deb.name.encode() + b"\0")
    return Image(kernel=cache / DEBIAN / "vmlinux",
                 initramfs=cache / f"initramfs-{digest.hexdigest()[:16]}")


def complete_image() -> Optional[Image]:
    images = (image_in(folder) for folder in cache_folders())
    return next((image for image in images if image.complete()), None)


@contextlib.contextmanager
def locked(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Children hold it too: if we are killed, they may write a little longer.
        os.set_inheritable(lock.fileno(), True)
        yield


def scratch_folder(cache: Path) -> tempfile.TemporaryDirectory:
    """Goes when left; if a killed child's child still writes there, next time."""
    return tempfile.TemporaryDirectory(prefix="new-", dir=cache,
                                       ignore_cleanup_errors=True)


def run(command: List[str], hint: str, **options) -> str:
    """The command's output, or a Problem of its last word and the hint."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.PIPE, close_fds=False,
                              env={**os.environ, "LC_ALL": "C"}, **options)
    except FileNotFoundError:
        raise Problem(f"{command[0]} is not installed, and the guest's kernel "
                      "comes as a Debian package") from None
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or ["no message"]
        raise Problem(f"{command[0]} failed ({words[-1]}); {hint}")
    return done.stdout


def kernel_package() -> str:
    hint = "the kernel comes from Debian: run `apt-get update` as root, with network"
    listing = run(["apt-cache", "depends", "linux-image-amd64"], hint)
    names = re.findall(r"^\s*Depends: (linux-image-\S+)", listing, re.MULTILINE)
    for name in names:
        if "-cloud-" not in name:  # that flavour is built without rxe
            return name
    raise Problem(f"apt knows no kernel for linux-image-amd64; {hint}")


def download(cache: Path) -> None:
    packages = [kernel_package(), "busybox-static"]
    print(f"prepare: downloading {' and '.join(packages)}", file=sys.stderr)
    with scratch_folder(cache) as scratch:
        debian = Path(scratch, DEBIAN)
        debian.mkdir()
        # Unpacked, not installed: busybox-static conflicts with busybox. The
        # _apt user cannot write here, hence the option, which spares a warning.
        run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root"] + packages,
            "this step needs network: run `apt-get update` as root, then again",
            cwd=debian)
        tree = unpack(debian, Path(scratch))
        vmlinuz = the_one(tree, "boot/vmlinuz-*").read_bytes()
        (debian / "vmlinux").write_bytes(uncompressed_kernel(vmlinuz))
        shutil.rmtree(cache / DEBIAN, ignore_errors=True)
        debian.rename(cache / DEBIAN)


def unpack(debian: Path, scratch: Path) -> Path:
    tree = scratch / "tree"
    for deb in sorted(debian.glob("*.deb")):
        run(["dpkg-deb", "-x", str(deb), str(tree)],
            f"remove {debian} and run tests/vm/prepare.py again")
    return tree


def the_one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise Problem(f"the packages hold {len(found)} files {pattern}, not one")
    return found[0]


def uncompressed_kernel(vmlinuz: bytes) -> bytes:
    """The ELF file inside a bzImage: emulated unpacking costs seconds a boot."""
    import lzma
    setup_sectors = vmlinuz[0x1F1]
    offset, length = struct.unpack_from("<II", vmlinuz, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    try:
        # An xz stream, then its unpacked size, which the decompressor ignores.
        return lzma.LZMADecompressor().decompress(vmlinuz[start:start + length])
    except lzma.LZMAError:
        return vmlinuz


def module_bytes(path: Path) -> bytes:
    if path.suffix == ".xz":
        import lzma
        return lzma.decompress(path.read_bytes())
    return path.read_bytes()


def modules_in_order(tree: Path) -> Dict[str, bytes]:
    """The modules and all that they depend on, each after its dependencies."""
    files = {path.name.split(".ko")[0].replace("-", "_"): path
             for path in tree.glob("lib/modules/*/kernel/**/*.ko*")}
    builtin = the_one(tree, "lib/modules/*/modules.builtin").read_text()
    ordered: Dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in ordered:
            return
        if name not in files:
            if re.search(rf"/{name.replace('_', '[-_]')}\.ko$", builtin, re.MULTILINE):
                return
            raise Problem(f"the kernel package has no module {name}")
        data = module_bytes(files[name])
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in depends.group(1).decode().split(",") if depends else []:
            if other:
                add(other.replace("-", "_"))
        ordered[name] = data

    for name in MODULES:
        add(name)
    return ordered


def cpio(entries: List[Tuple[str, int, bytes]]) -> bytes:
    """An archive in the kernel's "newc" format of (name, mode, content)."""
    archive = bytearray()
    trailer = ("TRAILER!!!", 0, b"")
    for inode, (name, mode, content) in enumerate(entries + [trailer], start=1):
        fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        archive += b"070701" + b"".join(b"%08x" % field for field in fields)
        archive += name.encode() + b"\0"
        archive += bytes(-len(archive) % 4)
        archive += content
        archive += bytes(-len(archive) % 4)
    return bytes(archive)


def initramfs_of(tree: Path) -> bytes:
    folder, program, plain = 0o040755, 0o100755, 0o100644
    modules = modules_in_order(tree)
    order = "".join(f"{name} {PARAMETERS.get(name, '')}\n" for name in modules)
    entries = [(name, folder, b"") for name in
               ("bin", "dev", "proc", "sys", "host", "share", "layer", "modules")]
    entries += [
        ("init", program, (HERE / "init.sh").read_bytes()),
        ("bin/busybox", program, the_one(tree, "bin/busybox").read_bytes()),
        ("modules/order", plain, order.encode()),
    ]
    entries += [(f"modules/{name}.ko", plain, data) for name, data in modules.items()]
    return cpio(entries)


def build(cache: Path) -> None:
    with scratch_folder(cache) as scratch:
        new = Path(scratch, "initramfs")
        new.write_bytes(initramfs_of(unpack(cache / DEBIAN, Path(scratch))))
        new.rename(image_in(cache).initramfs)


def remove_leftovers(cache: Path) -> None:
    """What an interrupted run left (we hold the lock), and what grew old."""
    for half in cache.glob("new-*"):
        shutil.rmtree(half, ignore_errors=True)
    built = sorted(cache.glob("initramfs-*"), key=lambda path: path.stat().st_mtime)
    for old in built[:-INITRAMFS_KEPT]:
        old.unlink()


def copy_packages(folders: List[Path], cache: Path) -> bool:
    """From a folder that is read-only, so that no network is needed."""
    for folder in folders:
        if os.path.isfile(image_in(folder).kernel):
            with scratch_folder(cache) as scratch:
                copy = shutil.copytree(folder / DEBIAN, Path(scratch, DEBIAN))
                copy.rename(cache / DEBIAN)
            return True
    return False


def prepare() -> Image:
    image = complete_image()
    if image:
        return image
    folders = cache_folders()
    cache = next((folder for folder in folders if is_writable(folder)), None)
    if not cache:
        raise Problem("no folder for the guest's kernel can be written to: "
                      f"{', '.join(map(str, folders))}; name one with SNT_CACHE")
    with locked(cache):
        remove_leftovers(cache)
        if not image_in(cache).kernel.is_file():
            copy_packages(folders, cache) or download(cache)
        if not image_in(cache).complete():
            build(cache)
    return image_in(cache)


def find() -> Image:
    image = complete_image()
    if not image:
        raise Problem("the guest's image is missing or out of date: "
                      "run tests/vm/prepare.py, the first time with network")
    return image


def main(arguments: List[str]) -> int:
    if arguments not in ([], ["--find"]):
        print(__doc__, file=sys.stderr)
        return 2
    # As an exception, so that half-built folders go.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        print(*(find() if arguments else prepare()), sep="\n")
    except (Problem, OSError) as problem:
        print(f"tests/vm/prepare.py: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
