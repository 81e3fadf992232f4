package rules

// Durability says how much of what a rule has granted may be forgotten when a node dies.
type Durability uint8

// The durabilities.
const (
	Relaxed Durability = iota // what was granted since the standby was last sent it
	Strict                    // a tenth of the limit: the answers to what is more wait for the standby
)

var durabilities = []string{Relaxed: "relaxed", Strict: "strict"}

// String returns the name that rules use, such as "strict".
func (d Durability) String() string { return durabilities[d] }
