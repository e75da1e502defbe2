"""This project's side: PACKAGE as `tcim-lite compile` wrote it.  python side_tcim.py PACKAGE"""

import sys
import time

from timing import measure, memory, report

import tcim_lite.runtime as tcim
from tcim_lite.llm import Generator, Package, load_pair


class Tcim:
    def __init__(self, folder: str):
        package = Package.open(folder)
        prefill, decode = load_pair(package.prefill_path, package.decode_path, tcim.WeightManager(0))
        self.model = Generator(prefill, decode, package.embedding_for(prefill))

    def prefill(self, tokens):
        return int(self.model.prefill(tokens).argmax())

    def decode(self, token, position):
        return int(self.model.decode(token, position).argmax())


tcim.get_device_num()
imports_bytes, begin = memory("VmRSS"), time.perf_counter()
side = Tcim(sys.argv[1])
load_s = time.perf_counter() - begin
report({"load_s": load_s, "imports_bytes": imports_bytes} | measure(side))
