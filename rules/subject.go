package rules

// Subject appends to buf what has chosen the counter of m, whose request is req, and returns the extended slice: the
// attributes of the rule's set, and an address as it is counted, without a port and as a block if it is IPv6. Of a
// descriptor they are all entries. It is none if all requests share the counter.
func (m *Match) Subject(req *Request, buf []Attribute) []Attribute {
	if m.Rule.Descriptor != nil {
		return append(buf, req.Attributes...)
	}
	if m.Per >= len(m.Rule.Per) {
		return buf
	}
	for _, name := range m.Rule.Per[m.Per] {
		value, _ := req.value(name)
		if addr, ok := ParseIP(value); ok && name == IPAttribute {
			value = addr.String()
			if addr.Is6() && m.Rule.IPv6Prefix < addr.BitLen() {
				if block, err := addr.Prefix(m.Rule.IPv6Prefix); err == nil {
					value = block.String()
				}
			}
		}
		buf = append(buf, Attribute{Key: name, Value: value})
	}
	return buf
}
