package api

import (
	"context"
	"net/http"
	"time"
)

// atMostFor ends the context of requests after that time.
func atMostFor(most time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), most)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// patientWriter gives the client bodyTimeout to read an answer as of when it begins,
// however long it has taken to find it. The server's WriteTimeout is as of the question.
type patientWriter struct {
	http.ResponseWriter
	begun bool
}

// patient has next write by a patientWriter, whose deadline until then is off.
func patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // not in tests without a server
		next.ServeHTTP(&patientWriter{ResponseWriter: w}, r)
	})
}

func (w *patientWriter) begin() {
	if !w.begun {
		w.begun = true
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(bodyTimeout)) // likewise
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *patientWriter) WriteHeader(code int) {
	w.begin()
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *patientWriter) Write(b []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// unhurried has next answer without the bounds of time that other answers have: a profile takes as long as its
// caller says.
func unhurried(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := w.(*patientWriter); ok {
			w = p.ResponseWriter
		}
		endless(w)
		next.ServeHTTP(w, r)
	})
}

// endless takes the deadlines of a connection, or of a stream over HTTP/2, away.
func endless(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // not in tests without a server
	_ = c.SetWriteDeadline(time.Time{})
}
