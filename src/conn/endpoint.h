/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_ENDPOINT_H
#define SNT_CONN_ENDPOINT_H

#include <sennit/endpoint.h>

/* Copies the program's endpoint, checks what both ends use, and fills in the defaults.
 * NULL: all defaults. The strings and the secret stay the program's. */
int snt__endpoint_import(const struct snt_endpoint *user,
			 struct snt_endpoint *endpoint);

/* Of the end that connects. */
int snt__endpoint_check_name(const char *name);

/* 0, or -EINVAL, also for a plain one: a stream's peer speaks sennit's protocol. */
int snt__endpoint_check_stream(const struct snt_endpoint *user);

#endif
