/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_PEER_H
#define SENNIT_TOOL_PEER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sennit/stream.h>

#include "options.h"

/* What subcommands that talk to another host over streams share: options, the secret,
 * and error messages. */

#define PEER_PORT "18515"

struct peer_opts {
	uint64_t port;
	int carrier; /* 0: CM, 1: TCP; see peer_carrier() */
	const char *source;
	const char *secret_file;
	uint64_t setup_ns;
	uint64_t detect_ns;
};

/* For the table of a subcommand, as an OPTION_TABLE. */
extern const struct option_entry peer_options[];

struct peer_secret {
	unsigned char bytes[SNT_SECRET_MAX];
	size_t length; /* 0: none */
};

/* Is this a host and port to connect to? STATUS_OK or STATUS_USAGE. */
int peer_check_target(const struct peer_opts *opts, const char *host);

/* Reads the secret's file, if one is given. Returns an enum status, having reported any
 * error. */
int peer_secret_read(const struct peer_opts *opts, struct peer_secret *secret);

/* Endpoints as the options say: to connect to, and to listen at. The secret must stay
 * valid until the call that takes the endpoint. */
void peer_target(const struct peer_opts *opts, const struct peer_secret *secret,
		 const char *host, struct snt_endpoint *endpoint);
void peer_local(const struct peer_opts *opts, const struct peer_secret *secret,
		struct snt_endpoint *endpoint);

/* From now on SIGINT, SIGTERM and SIGHUP set peer_stopped, and do not end a server by
 * themselves, so that its peers can be told. A closed pipe at its output does not end
 * it either. */
extern volatile sig_atomic_t peer_stopped; /* the signal; 0: none */
void peer_catch_signals(void);
/* The same for a client, which a second signal ends at once. */
void peer_catch_first_signal(void);

/* "listening on port N, devices at ADDRESS, ADDRESS": a note, and an object with --json. */
void peer_say_listening(const struct snt_stream_listener *listener);

/* Reports why there is no connection, and what to do about it. Returns
 * STATUS_FAILED. */
int peer_failed(struct snt_loop *loop, const char *host, const struct peer_opts *opts,
		int error, const char *text);

#endif
