# Static binary in an image without a shell. Build: docker build -t compactproxy .
# Run: docker run -p 8787:8787 -v ./proxy.toml:/etc/compactproxy/proxy.toml:ro -v state:/var/lib/compactproxy compactproxy
# In the container proxy.toml must listen on 0.0.0.0:8787. The health check finds admin_listen on 127.0.0.1 and on
# 0.0.0.0 (which needs admin_token). A folder that is mounted for the state must belong to user 65532.

FROM rust:1.90-alpine AS build
# The C libraries (SQLite, zstd, ring) are compiled along; musl makes the binary static.
RUN apk add --no-cache musl-dev gcc make
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin compactproxy
# The state folder, owned by the user that the final image runs as.
RUN mkdir -p /state

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/target/release/compactproxy /usr/local/bin/compactproxy
COPY --from=build /src/LICENSE /src/proxy.toml /usr/share/doc/compactproxy/
COPY --from=build --chown=65532:65532 /state /var/lib/compactproxy
USER 65532:65532
WORKDIR /var/lib/compactproxy
VOLUME /var/lib/compactproxy
EXPOSE 8787
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s CMD ["/usr/local/bin/compactproxy", "health", "--config", "/etc/compactproxy/proxy.toml"]
ENTRYPOINT ["/usr/local/bin/compactproxy"]
CMD ["--config", "/etc/compactproxy/proxy.toml"]
