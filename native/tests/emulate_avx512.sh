#!/bin/sh
# Runs the native tests on an emulated CPU with AVX-512: Bochs emulates an Ice Lake and boots Debian's kernel, which
# runs only the tests. This is no benchmark.
#
#   emulate_avx512.sh BUILD [ROUNDS]    BUILD was configured with -DBIBERT_TESTS=ON -DCMAKE_EXE_LINKER_FLAGS=-static
#
# Needs, on Debian 12: apt-get install bochs bochs-sdl busybox-static cpio isolinux syslinux-common xorriso
# The kernel package is downloaded to BUILD/emulator once and not installed.
set -eu

build=$(cd "$1" && pwd)
rounds=${2:-50}
tests=$build/native/tests
work=$build/emulator
mkdir -p "$work/disc" "$work/system/bin" "$work/system/etc" "$work/system/proc"
cd "$work"

if [ ! -e disc/vmlinuz ]; then
  kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p')
  apt-get download "$kernel"
  dpkg --fsys-tarfile "$kernel"_*.deb | tar -xO --wildcards './boot/vmlinuz-*' > vmlinuz
  mv vmlinuz disc/vmlinuz
fi

# The file system of the emulated machine. model_test runs as a user who may not start threads: on the single CPU,
# fifteen threads that wait for each other would take hours.
cp /bin/busybox system/bin/
cp "$tests/kernels_test" "$tests/levels_test" "$tests/model_test" system/
echo nobody:x:65534:65534::/:/ > system/etc/passwd
cat > system/init <<END
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/kernels_test $rounds &&
  /levels_test $rounds &&
  (ulimit -u 1; exec /bin/busybox start-stop-daemon -S -c nobody -x /model_test -- $((rounds / 10))) &&
  echo all native tests passed
/bin/busybox sleep 1
/bin/busybox poweroff -f
END
chmod +x system/init
(cd system && find . | cpio --quiet -o -H newc) | gzip -1 > disc/initrd

# clearcpuid hides features that Bochs 2.7 reports wrongly: no state size for pku, a wrong one for the compacted formats
# of xsave, and fsrm without the fast strings it requires.
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 disc/
cat > disc/isolinux.cfg <<END
default linux
label linux
  kernel vmlinuz
  append initrd=initrd console=ttyS0 loglevel=1 nokaslr mitigations=off tsc=reliable clearcpuid=pku,xsavec,xsaves,fsrm
END
xorriso -as mkisofs -quiet -o disc.iso -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
  -boot-info-table disc 2> xorriso.log

cat > bochsrc <<END
cpu: model=corei7_icelake_u, ips=100000000
memory: guest=256, host=256
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=disc.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=console.txt
display_library: sdl2
speaker: enabled=0
sound: waveoutdrv=dummy
log: bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
END
echo continue > debugger  # Debian builds Bochs with its debugger, which waits for this
rm -f console.txt disc.iso.lock
SDL_VIDEODRIVER=dummy timeout -s KILL 3600 bochs-bin -q -f bochsrc -rc debugger > screen.txt 2>&1 < /dev/null || true
tr -d '\r' < console.txt
grep -q '^avx512: .* 0 failures' console.txt && grep -q '^all native tests passed' console.txt
