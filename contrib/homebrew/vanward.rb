# Formula of Homebrew on Linux. `cargo xtask package` fills it in, and writes it beside the tarballs with their digests.
class Vanward < Formula
  desc "Reverse proxy and the lab that measures proxies"
  homepage "${url}"
  version "${version}"
  license any_of: ["Apache-2.0", "MIT"]

  depends_on :linux

  on_arm do
    url "${url}/vanward-${version}-aarch64-unknown-linux-gnu.tar.gz"
    sha256 "${sha256_arm64}"
  end

  on_intel do
    url "${url}/vanward-${version}-x86_64-unknown-linux-gnu.tar.gz"
    sha256 "${sha256_amd64}"
  end

  def install
    bin.install "bin/vanward"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/vanward"
    zsh_completion.install "share/zsh/site-functions/_vanward"
    fish_completion.install "share/fish/vendor_completions.d/vanward.fish"
    pkgshare.install "share/vanward/welcome"
    doc.install Dir["share/doc/vanward/*"]
  end

  test do
    (testpath/"vanward.toml").write <<~TOML
      [[listen]]
      address = "127.0.0.1:8080"
      [[route]]
      respond = { status = 204 }
    TOML
    assert_match "valid", shell_output("#{bin}/vanward check #{testpath}/vanward.toml")
  end
end
