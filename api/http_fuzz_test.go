package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// FuzzHTTPCheck: for any body, the answer is a decision or a client error that says what is wrong with the
// body.
func FuzzHTTPCheck(f *testing.F) {
	for _, body := range []string{
		"", "{", "null", "[]", "\xff", goodBody, goodBody + " \n", goodBody + "x",
		`{"identifier":"a","identifier_type":"user","endpoint":"/e","tokens_requested":"7","timestamp":-1,"domain":"d","attributes":{"a":"b"},"peek":true}`,
		`{"requests":[` + goodBody + `,` + goodBody + `]}`,
		`{"requests":[{},null]}`,
		`{"identifier":"\ud800"}`, `{"\u0000":1}`, `{"attributes":{"\xff":"x"}}`, `{"attributes":{"é":""}}`,
		`{"tokens_requested":1e400}`, `{"tokens_requested":2147483649}`, `{"peek":"` + strings.Repeat("é", 600) + `"}`,
	} {
		f.Add([]byte(body), false)
		f.Add([]byte(body), true)
	}
	h := newFixture(f, inputRules).handler(f)
	f.Fuzz(func(t *testing.T, body []byte, batch bool) {
		path, message := checkPath, proto.Message(&weirv1.RateLimitResponse{})
		if batch {
			path, message = batchPath, &weirv1.RateLimitBatchResponse{}
		}
		w := send(h, http.MethodPost, path, string(body))
		switch w.Code {
		case http.StatusTooManyRequests, http.StatusOK:
			if err := protojson.Unmarshal(w.Body.Bytes(), message); err != nil {
				t.Errorf("%d %s: %v", w.Code, w.Body, err)
			}
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			var e struct{ Message string }
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || !strings.Contains(e.Message, ": ") {
				t.Errorf("%d %s: %v", w.Code, w.Body, err)
			}
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
