#!/usr/bin/env python3
"""Fails if an instruction of a large instruction set stands outside the kernels compiled for it.

usage: tools/check_isa.py PROGRAM
The linker keeps one copy of an inline function. If a source that was compiled for AVX-512 instantiates one that others use
too, the kept copy may hold AVX-512 instructions, and the program dies on a machine without them, and only there. So: zmm
registers may occur only in functions of namespace heddle::cpu::avx512, ymm registers only there and in avx2. Functions of
static libraries that the compiler's run time brings are not ours to judge.
"""
import re
import subprocess
import sys


def main():
    program = sys.argv[1]
    listing = subprocess.Popen(["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", program], stdout=subprocess.PIPE, text=True)
    name, bad, seen = "", {}, {"avx2": 0, "avx512": 0}
    for line in listing.stdout:
        if line.endswith(">:\n"):
            name = line[line.index("<") + 1:-3]
            continue
        wide = "%zmm" in line or re.search(r"%k[1-7]\b", line) is not None
        if not wide and "%ymm" not in line:
            continue
        home = "avx512" if "heddle::cpu::avx512::" in name else "avx2" if "heddle::cpu::avx2::" in name else None
        if home:
            seen[home] += 1
        if home == "avx512" or (home == "avx2" and not wide):
            continue
        bad.setdefault(name, line.strip())
    if listing.wait():
        sys.exit("objdump failed")
    for function, instruction in sorted(bad.items()):
        print(f"{function}: {instruction}")
    print(f"{program}: {seen['avx512']} wide instructions in avx512, {seen['avx2']} in avx2, {len(bad)} functions outside")
    if bad or not all(seen.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
