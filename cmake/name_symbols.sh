#!/bin/sh
# Runs a compiler, then gives the functions that are local to the object of an instruction set (flex_avx2.c.o) its name:
# fold becomes fold.flex_avx2, so that profilers, nm and debuggers tell it from the one of flex_avx512bw
# (docs/decisions/0028-names-of-kernels.md). usage: name_symbols.sh NM OBJCOPY COMPILER ARGUMENT...
nm=$1 objcopy=$2
shift 2
"$@" || exit
while [ $# -gt 1 ] && [ "$1" != -o ]; do
    shift
done
object=$2
name=${object##*/}
name=${name%.c.o}
case $name in
    *_portable | *_avx2 | *_avx2_vnni | *_avx512bw | *_avx512 | *_avx512_fast | *_avx512_amx | *_avx512_amx_fast) ;;
    *) exit 0 ;;
esac
# A second file, then its name: compiler caches may share the first one with others.
"$nm" "$object" | sed -n "s/^[0-9a-f]* t \([^_].*\)$/\1 \1.$name/p" >"$object.names" &&
    "$objcopy" --redefine-syms="$object.names" "$object" "$object.named" && mv "$object.named" "$object" && rm "$object.names"
