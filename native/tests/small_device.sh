#!/bin/sh
# Runs the example device in qemu and prints what it takes on a small ARM computer: small_device.sh BUILD MODEL.
# Large blocks get memory of their own, so that glibc's maximum of it is the peak of the heap.
set -eu
program=$1/native/examples/device
model=$2
aarch64-linux-gnu-strip -o "$1/device" "$program"
ids=$(awk 'BEGIN { printf "101"; for (i = 0; i < 126; ++i) printf " 2143"; print " 102" }') # 128 tokens
echo "$ids" | GLIBC_TUNABLES=glibc.malloc.mmap_threshold=65536 qemu-aarch64 "$1/device" "$model" 2>"$1/heap" >"$1/answer"
read -r label _ <"$1/answer"
case $label in 0 | 1) ;; *) echo "no label in $1/answer" >&2 && exit 1 ;; esac
flash=$(wc -c <"$1/device")
heap=$(awk '/^system bytes/ { arena = $4 } /^max mmap bytes/ { mapped = $5 } END { print arena + mapped }' "$1/heap")
static=$(aarch64-linux-gnu-size "$1/device" | awk 'NR == 2 { print $2 + $3 }')
echo "program $((flash / 1000)) KB, model $(($(wc -c <"$model") / 1000)) KB, heap $((heap / 1000)) KB, static data $((static / 1000)) KB"
