"""A cluster that speaks https: any client that trusts its certificate, the commands by themselves, and nobody over http."""
import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import unittest

import support

OPENSSL = shutil.which("openssl")


def make_certificate(folder, name):
    """Self-signed, for 127.0.0.1: the paths of certificate and key."""
    certificate, key = (os.path.join(folder, f"{name}.{kind}") for kind in ("pem", "key"))
    subprocess.run([OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key], check=True, capture_output=True)
    os.chmod(key, 0o600)
    return certificate, key


@unittest.skipUnless(OPENSSL, "the openssl command makes the certificates")
class Https(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="strata-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.certificate, cls.key = make_certificate(cls.folder, "server")
        settings = {"gateway.tls_certificate": cls.certificate, "gateway.tls_key": cls.key}
        cls.cluster = support.Cluster(settings)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPSConnection("127.0.0.1", self.cluster.port, timeout=60, context=ssl.create_default_context(cafile=self.certificate))
        with contextlib.closing(connection):
            connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def test_a_client_that_trusts_the_certificate_gets_answers_and_streams(self):
        body = {"model": "default", "messages": [{"role": "user", "content": "What is a violin?"}], "temperature": 0, "max_tokens": 16}
        status, whole = self.ask("POST", "/v1/chat/completions", body)
        self.assertEqual(status, 200, whole)
        status, stream = self.ask("POST", "/v1/chat/completions", {**body, "stream": True})
        self.assertEqual(status, 200, stream)
        self.assertTrue(stream.endswith("data: [DONE]\n\n"), stream)
        chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
        text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
        self.assertEqual(text, json.loads(whole)["choices"][0]["message"]["content"])

    def test_plain_http_is_told_what_is_spoken_here(self):
        status, error, _ = self.cluster.request("GET", "/v1/models")
        self.assertEqual(status, 400)
        self.assertIn("https", error["error"]["message"])

    def chat(self, *arguments, environment=None):
        environment = {**{name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}, **(environment or {})}
        return support.strata("chat", *arguments, "--max-tokens", "8", input="What is a violin?\n", env=environment)

    def test_the_commands_trust_the_certificate_of_their_own_cluster(self):
        done = self.chat("--run-dir", self.cluster.run_dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.strip())
        self.assertIn(f"https://127.0.0.1:{self.cluster.port}", support.strata("status", "--run-dir", self.cluster.run_dir).stdout)

    def test_of_other_servers_they_trust_what_the_system_trusts(self):
        url = f"https://127.0.0.1:{self.cluster.port}"
        refused = self.chat("--url", url)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("certificate is not trusted", refused.stderr)
        done = self.chat("--url", url, environment={"SSL_CERT_FILE": self.certificate})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_key_of_another_certificate_is_a_start_up_fault(self):
        _, key = make_certificate(self.folder, "other")
        done = support.strata("up", "--config", support.DEMO, "--run-dir", os.path.join(self.folder, "run"), "--listen", "127.0.0.1:0",
                              "--set", f"gateway.tls_certificate={self.certificate}", "--set", f"gateway.tls_key={key}")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"gateway.tls_key: {key}: is not the key of the certificate {self.certificate}", done.stderr)


if __name__ == "__main__":
    unittest.main()
