//go:build !race

package replica

const raced = false
