package dev

import (
	"net"
	"testing"
)

func TestFreePorts(t *testing.T) {
	first, err := freePorts("127.0.0.1", 5)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", at("127.0.0.1", first+3))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := portsFree("127.0.0.1", first, 5); err == nil {
		t.Error("a port in use counts as free")
	}
	if err := portsFree("127.0.0.1", first, 3); err != nil {
		t.Error(err)
	}
}
