package dev

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Free ports are looked for below those that systems give to outgoing connections: none of these takes the port of a node that
// was killed and is to come back.
const (
	lowestPort  = 20_000
	highestPort = 29_999
	portTries   = 100
)

// freePorts finds successive ports of host that are free now, as many as count says, and returns the lowest of them.
func freePorts(host string, count int) (first int, err error) {
	for range portTries {
		first = lowestPort + rand.IntN(highestPort-lowestPort-count)
		if err = portsFree(host, first, count); err == nil {
			return first, nil
		}
	}
	return 0, fmt.Errorf("find %d successive free ports between %d and %d: %w", count, lowestPort, highestPort, err)
}

// portsFree returns an error if one of the ports cannot be listened on.
func portsFree(host string, first, count int) error {
	for port := first; port < first+count; port++ {
		l, err := net.Listen("tcp", at(host, port))
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
