package node

import (
	"fmt"
	"strconv"
	"strings"
)

// Bounds of Options.DomainWeights.
const (
	maxDomainWeights = 256
	minDomainWeight  = 0.01
	maxDomainWeight  = 100
)

// domainWeights returns the weights of domains; the options are valid.
func (o Options) domainWeights() map[string]float64 {
	weights, _ := parseDomainWeights(o.DomainWeights)
	return weights
}

func badDomainWeights(texts []string) string {
	_, problem := parseDomainWeights(texts)
	return problem
}

// parseDomainWeights reads weights written as DOMAIN=WEIGHT, and returns what is wrong with one.
func parseDomainWeights(texts []string) (map[string]float64, string) {
	if len(texts) > maxDomainWeights {
		return nil, fmt.Sprintf("has %d entries, at most %d are allowed", len(texts), maxDomainWeights)
	}
	weights := make(map[string]float64, len(texts))
	for _, text := range texts {
		i := strings.LastIndex(text, "=") // names of domains may have one
		if i < 1 {
			return nil, fmt.Sprintf("%q is not a domain and its weight, such as shop=3", text)
		}
		domain := text[:i]
		weight, err := strconv.ParseFloat(text[i+1:], 64)
		if err != nil || !(weight >= minDomainWeight && weight <= maxDomainWeight) {
			return nil, fmt.Sprintf("%q has the weight %q, allowed is %v to %v", text, text[i+1:], minDomainWeight, maxDomainWeight)
		}
		if _, twice := weights[domain]; twice {
			return nil, fmt.Sprintf("%q: the domain %s stands there twice", text, domain)
		}
		weights[domain] = weight
	}
	return weights, ""
}
