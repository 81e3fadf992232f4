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
	// maxKept bounds the file of the last good resources, in bytes. Its JSON has them in base64.
	maxKept = 2 * MaxMessage
	// keptPatience is how long a server that is reached may send nothing before a start uses what an earlier run has kept.
	keptPatience = time.Second
	// keepAgainIn is when the file is written again after a failure.
	keepAgainIn = 10 * time.Second
	// maxNested is how deep descriptors may stand one in the other when they are taken over; rules allow fewer.
	maxNested = 64
)
