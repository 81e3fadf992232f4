package api

import (
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
)

func TestMain(m *testing.M) {
	// As the program does; by default a buffer for 100 KiB has 1 MiB.
	pool, err := mem.NewBinaryTieredBufferPool(8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		panic(err)
	}
	experimental.SetDefaultBufferPool(pool)
	goleak.VerifyTestMain(m)
}
