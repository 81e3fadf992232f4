#!/bin/sh
# Makes the user and the directories of the service. It starts nothing, and restarts nothing: nodes of a cluster are restarted one
# after the other, by the operator.
set -e
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers weir.conf
  systemd-tmpfiles --create weir.conf
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
