package xds

import "time"

// Bounds of what a server may send, and of how often it is asked.
const (
	// MaxMessage is the most that one message of the server may have, in bytes.
	MaxMessage = 16 << 20
	// maxDetail bounds what a NACK says of bad resources, in bytes.
	maxDetail = 8 << 10
	// connectTimeout bounds one attempt to connect, TLS included.
	connectTimeout = 10 * time.Second
	// nackPause is the longest wait before the same bad resources are refused once more. Servers answer a NACK with
	// the resources that they have, so that without it both sides would do nothing else.
	nackPause = 500 * time.Millisecond
	// maxNested is how deep descriptors may stand one in the other when they are taken over; rules allow fewer.
	maxNested = 64
)
