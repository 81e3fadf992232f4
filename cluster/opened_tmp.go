package cluster

// Opened tmp
func (p *Promises) Opened() {}
