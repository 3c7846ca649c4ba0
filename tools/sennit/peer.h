/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_PEER_H
#define SENNIT_TOOL_PEER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sennit/stream.h>

#include "options.h"

/* What subcommands that talk to another host over streams have in common: options, the
 * secret, and words about what went wrong. */

#define PEER_PORT "18515"

struct peer_opts {
	uint64_t port;
	int carrier; /* 0: CM, 1: TCP; see peer_carrier() */
	const char *source;
	const char *secret_file;
	uint64_t setup_ns;
	uint64_t detect_ns;
};

/* To be named in the table of a subcommand, as an OPTION_TABLE. */
extern const struct option_entry peer_options[];

struct peer_secret {
	unsigned char bytes[SNT_CONN_SECRET_MAX];
	size_t length; /* 0: none */
};

/* Can one connect to this host and port at all? STATUS_OK or STATUS_USAGE. */
int peer_check_target(const struct peer_opts *opts, const char *host);

/* Reads the secret's file, where there is one. Returns an enum status, having said what is
 * wrong. */
int peer_secret_read(const struct peer_opts *opts, struct peer_secret *secret);

/* What the options say, into fields of stream.h; the rest is left alone. The secret must stay
 * until the call that they are for. */
void peer_connect_opts(const struct peer_opts *opts, const struct peer_secret *secret,
		       const char *host, struct snt_stream_opts *stream);
void peer_listen_opts(const struct peer_opts *opts, const struct peer_secret *secret,
		      struct snt_stream_listener_opts *listen);

/* From now on SIGINT, SIGTERM and SIGHUP set peer_stopped, and end no server by themselves:
 * its peers are told. That nobody reads what it says does not end it either. */
extern volatile sig_atomic_t peer_stopped; /* the signal; 0: none */
void peer_catch_signals(void);
/* The same for a client, which a second signal ends at once. */
void peer_catch_first_signal(void);

/* "listening on port N, devices at ADDRESS, ADDRESS": a note, and an object with --json. */
void peer_say_listening(const struct snt_stream_listener *listener);

/* Says why there is no connection, and what to do about it. Returns STATUS_FAILED. */
int peer_failed(struct snt_loop *loop, const char *host, const struct peer_opts *opts,
		int error, const char *text);

#endif
