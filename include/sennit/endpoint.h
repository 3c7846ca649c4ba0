/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_ENDPOINT_H
#define SENNIT_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>

/*
 * An endpoint: the place where two ends meet, and what both must know to meet there. The
 * listener listens at it, and the other end connects to it:
 *
 *	struct snt_endpoint endpoint = SNT_INIT(endpoint, .host = "10.0.0.1", .port = 4000);
 *
 *	snt_listener_create(loop, &endpoint, &listener_opts, &listener);
 *	snt_conn_connect(loop, &endpoint, &conn_opts, &conn);
 *
 * The same structure serves connections (conn.h) and streams (stream.h), at both ends. The
 * calls copy what they need. A member that says which end it is for is not used by the
 * other end, so a program can have one endpoint for all of its calls.
 */

#ifdef __cplusplus
extern "C" {
#endif

/* A name, with its NUL. */
#define SNT_NAME_MAX 32
/* The shortest and longest secret. */
#define SNT_SECRET_MIN 16
#define SNT_SECRET_MAX 256
/* A numeric address as text, with its NUL. */
#define SNT_ADDRESS_MAX 48

enum snt_carrier {
	SNT_CARRIER_DEFAULT = 0, /* SNT_CARRIER_CM */
	SNT_CARRIER_CM,
	SNT_CARRIER_TCP,
	/* None: the peer may be any program that uses rdma_cm; see "Plain connections" in
	 * conn.h. */
	SNT_CARRIER_PLAIN,
};

struct snt_endpoint {
	size_t size;
	/* The listener's address: "10.0.0.1", "fe80::1%eth0", or a host name.
	 *
	 * Connecting, of a name the first address is used whose family a device supports.
	 * The name is resolved in the background, by a thread of its own; if it cannot be
	 * resolved the connection ends with -EINVAL, or with -EHOSTUNREACH if the failure
	 * may be temporary.
	 *
	 * Listening, NULL means all local addresses. A name is resolved before the call
	 * returns, for up to setup_ns, so that the call can report the port, or that the
	 * name is unknown. A loop that must not block uses a numeric address here. */
	const char *host;
	uint16_t port;	    /* listening, 0: any free port */
	const char *source; /* connecting: a numeric local address; NULL: any */
	/* How the connection's own messages travel, see conn.h; the same at both ends. */
	enum snt_carrier carrier;
	/* Both ends have the same, or none. -EOPNOTSUPP in a library that was built without
	 * libcrypto. */
	const void *secret;
	size_t secret_length;
	const char *
		name; /* connecting: of this end, see "Identity" in conn.h; NULL: none */
	/* For all of the setup of a connection, resolving the host included; 0: 10 s. */
	uint64_t setup_ns;
	/* Within this time the loss of the peer is detected, see conn.h: from 50 ms to an
	 * hour, the lesser of both ends; 0: 5 s. A plain connection notices it when it has
	 * something to send. */
	uint64_t detect_ns;
};

#ifdef __cplusplus
}
#endif

#endif
