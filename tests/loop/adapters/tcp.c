/* SPDX-License-Identifier: MIT */
#include "loop/adapters/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/adapters/world.h"

static void answer(void *arg)
{
	struct tcp *tcp = arg;
	char bytes[256];
	ssize_t got = read(tcp->server, bytes, sizeof(bytes));

	expect(got > 0 || errno == EAGAIN, "TCP: %s", strerror(errno));
	if (got > 0)
		expect(write(tcp->server, bytes, got) == got, "TCP: %s",
		       strerror(errno));
}

static void ask(struct tcp *tcp)
{
	tcp->next++;
	expect(write(tcp->client, &tcp->next, sizeof(tcp->next)) == sizeof(tcp->next),
	       "TCP: %s", strerror(errno));
}

static void answered(void *arg)
{
	struct tcp *tcp = arg;
	uint64_t number;
	ssize_t got = read(tcp->client, &number, sizeof(number));

	if (got < 0 && errno == EAGAIN)
		return;
	/* What is written as a whole is not cut on the loopback interface. */
	expect(got == sizeof(number) && number == tcp->next, "TCP: a wrong answer");
	tcp->rounds++;
	ask(tcp);
}

void tcp_open(struct tcp *tcp, const struct driver *driver)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);

	tcp->driver = driver;
	tcp->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	tcp->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	expect(tcp->listener >= 0 && tcp->client >= 0 &&
		       !bind(tcp->listener, (struct sockaddr *)&address, length) &&
		       !listen(tcp->listener, 1) &&
		       !getsockname(tcp->listener, (struct sockaddr *)&address,
				    &length) &&
		       !connect(tcp->client, (struct sockaddr *)&address, length),
	       "TCP: %s", strerror(errno));
	tcp->server = accept(tcp->listener, NULL, NULL);
	expect(tcp->server >= 0, "TCP: %s", strerror(errno));
	fcntl(tcp->client, F_SETFL, O_NONBLOCK);
	fcntl(tcp->server, F_SETFL, O_NONBLOCK);
	tcp->watched[0] = driver->watch(tcp->client, answered, tcp);
	tcp->watched[1] = driver->watch(tcp->server, answer, tcp);
	ask(tcp);
}

void tcp_close(struct tcp *tcp)
{
	for (int i = 0; i < 2; i++)
		tcp->driver->unwatch(tcp->watched[i]);
	close(tcp->client);
	close(tcp->server);
	close(tcp->listener);
}
