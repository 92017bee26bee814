#!/bin/sh
# The first process of a running board: starts sshd and reaps who has lost its parent.
set -eu
cd /
umount -l /run/machine
rmdir /run/machine
/usr/sbin/sshd -D -e -f /etc/ssh/board_config < /dev/null > /var/log/sshd.log 2>&1 &
sleep infinity < /dev/null > /dev/null 2>&1 &
wait
