# The image of a node: one static program, run by a user without rights. docs/install.md says how to run it.
FROM golang:1.26-bookworm AS build
ARG VERSION=
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X github.com/weirlimit/weir/node.version=$VERSION" -o out/weir ./cmd/weir
RUN mkdir -p out/data

FROM scratch
LABEL org.opencontainers.image.source=https://github.com/weirlimit/weir
LABEL org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /src/out/data /data
COPY --from=build /src/out/weir /weir
ENV WEIR_DATA_DIR=/data
ENV WEIR_GRPC=0.0.0.0:9090
ENV WEIR_HTTP=0.0.0.0:8080
USER 65532:65532
VOLUME /data
EXPOSE 9090 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["/weir", "healthcheck"]
ENTRYPOINT ["/weir"]
CMD ["serve"]
