"""Upload a directory to the Hugging Face hub."""

from pathlib import Path

from jax_sentemb.errors import ConfigError, first_line


def upload(name: str, folder: Path, private: bool, token: str | None) -> str:
    """Upload the files of a folder as the repository `USER/NAME`, and return the address of the commit.

    Raises:
        ConfigError: The hub refuses.
    """
    import huggingface_hub

    try:
        api = huggingface_hub.HfApi(token=token)
        repository = api.create_repo(name, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=repository.repo_id, folder_path=folder, commit_message="Model of jax_sentemb"))
    except Exception as error:  # the hub client raises a dozen types of errors
        raise ConfigError(f"push_to_hub({name!r}): {first_line(error)}") from error
