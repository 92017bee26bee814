#!/bin/sh
# Builds a board's file system and goes there. Runs as the board's first process, in its namespaces.
# Usage: boot.sh DISK NAME LOWER KEPT...: LOWER is the root that lies below the board's own files.
set -eu
disk=$1 name=$2 lower=$3
shift 3
hostname "$name"
root=$disk/root
mount -t overlay "$name" \
    -o "lowerdir=$lower,upperdir=$disk/upper,workdir=$disk/work" "$root"

number=0
for kept in "$@"; do
    mkdir -p "$root$kept"
    mount -t overlay "$name" \
        -o "lowerdir=$kept,upperdir=$disk/kept/$number/upper,workdir=$disk/kept/$number/work" "$root$kept"
    number=$((number + 1))
done

mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=0755,size=1m dev "$root/dev"
for device in null zero full random urandom tty; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir -m 0755 "$root/dev/pts"
mkdir -m 1777 "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"

cp "$disk/first_process.sh" "$root/sbin/first_process"
mkdir -p "$root/run/machine"
cd "$root"
pivot_root . run/machine
exec chroot . /bin/sh /sbin/first_process
