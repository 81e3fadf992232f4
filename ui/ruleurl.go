package ui

import (
	"net/url"
	"strings"
)

// ruleURL returns the path of a rule's page. Ids may have slashes.
func ruleURL(domain, id string) string {
	return "/ui/rules/" + url.PathEscape(domain) + "/" + escapePath(id)
}

func escapePath(id string) string {
	parts := strings.Split(id, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}
