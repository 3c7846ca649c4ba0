/* SPDX-License-Identifier: MIT */
#include "conn/endpoint.h"

#include <errno.h>
#include <string.h>

#include "conn/mac.h"
#include "util/err.h"
#include "util/opts.h"

#define MS_NS		  UINT64_C(1000000)
#define SETUP_DEFAULT_NS  (10000 * MS_NS)
#define DETECT_DEFAULT_NS (5000 * MS_NS)
#define DETECT_MIN_NS	  (50 * MS_NS)
#define DETECT_MAX_NS	  (3600000 * MS_NS)

static int check_endpoint_secret(const void *secret, size_t length)
{
	if (!secret && !length)
		return 0;
	if (!secret)
		return snt__fail(EINVAL, "a secret of %zu bytes is NULL", length);
	if (length < SNT_SECRET_MIN || length > SNT_SECRET_MAX)
		return snt__fail(EINVAL, "a secret has %d to %d bytes, not %zu",
				 SNT_SECRET_MIN, SNT_SECRET_MAX, length);
	if (!snt__mac_available())
		return snt__fail(EOPNOTSUPP,
				 "this library was built without libcrypto, so that it "
				 "cannot use a secret");
	return 0;
}

int snt__endpoint_check_name(const char *name)
{
	if (!name || (name[0] && strlen(name) < SNT_NAME_MAX))
		return 0;
	return snt__fail(EINVAL,
			 "snt_endpoint.name \"%.64s\" has %zu characters; it must be "
			 "1 to %d",
			 name, strlen(name), SNT_NAME_MAX - 1);
}

static int check_detect_time(uint64_t detect_ns)
{
	if (detect_ns >= DETECT_MIN_NS && detect_ns <= DETECT_MAX_NS)
		return 0;
	return snt__fail(
		EINVAL,
		"snt_endpoint.detect_ns is %llu; it must be from 50 ms to an hour",
		(unsigned long long)detect_ns);
}

static void fill_defaults(struct snt_endpoint *endpoint)
{
	if (!endpoint->carrier)
		endpoint->carrier = SNT_CARRIER_CM;
	if (!endpoint->setup_ns)
		endpoint->setup_ns = SETUP_DEFAULT_NS;
	if (!endpoint->detect_ns)
		endpoint->detect_ns = DETECT_DEFAULT_NS;
}

int snt__endpoint_import(const struct snt_endpoint *user, struct snt_endpoint *endpoint)
{
	int ret = snt__opts_import(endpoint, sizeof(*endpoint), user,
				   "struct snt_endpoint");

	if (ret)
		return ret;
	fill_defaults(endpoint);
	if (endpoint->carrier > SNT_CARRIER_PLAIN)
		return snt__fail(EINVAL,
				 "snt_endpoint.carrier is %u, which is not a carrier",
				 endpoint->carrier);
	ret = check_endpoint_secret(endpoint->secret, endpoint->secret_length);
	return ret ? ret : check_detect_time(endpoint->detect_ns);
}

int snt__endpoint_check_stream(const struct snt_endpoint *user)
{
	struct snt_endpoint endpoint;
	int ret = snt__endpoint_import(user, &endpoint);

	if (!ret && endpoint.carrier == SNT_CARRIER_PLAIN)
		ret = snt__fail(EINVAL,
				"a stream cannot be plain, since its peer must be one "
				"of sennit's; use SNT_CARRIER_CM or SNT_CARRIER_TCP");
	return ret;
}
