#!/bin/sh
# Stops the node before its program is removed, but not before it is replaced: $1 is "remove" (deb) or 0 (rpm) then.
set -e
case ${1:-} in
remove | 0)
  if [ -d /run/systemd/system ]; then
    systemctl disable --now weir.service
  fi
  ;;
esac
